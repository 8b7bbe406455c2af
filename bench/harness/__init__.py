"""What every bench shares: processes and their cost, load, the machine, tables. Standard library only."""
