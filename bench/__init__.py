"""How fast gradwright is, against peers in the same run: ``python -m bench [NAME …]``."""
