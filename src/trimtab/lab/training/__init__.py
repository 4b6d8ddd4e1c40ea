"""Training of the recommenders that learn. What they learned is used by `trimtab.sizing` without any of this.

JAX does the mathematics here, on a GPU where there is one; `pip install 'trimtab[train]'`.
"""
