"""The loop of intents: what is wanted is measured, a plan is made, its deeds are done, judged and learned from."""
