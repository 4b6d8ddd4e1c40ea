"""Where usage comes from."""
