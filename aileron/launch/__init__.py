"""Starting a coding agent with its actions registered: one module for each agent, and nothing of the agent's left changed."""
