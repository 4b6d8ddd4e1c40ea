"""The Intent controller: measure objectives, make plans, execute their actions, evaluate and learn from them."""
