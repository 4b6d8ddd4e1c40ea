"""Tools of the developers: the language of the product and of its commits."""
