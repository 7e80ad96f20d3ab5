"""What each graph takes and gives, and what each chip can do; `contract.py` and `soc.py` are the only readers."""
