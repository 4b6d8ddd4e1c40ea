"""The lab: try on data what would act on clusters."""
