"""What happens when things go wrong: engines killed, clients gone, files damaged, memory short, rights missing."""
