"""The built-in actuators, one module each: their candidate actions and expected results."""
