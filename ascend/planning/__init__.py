"""A forecast before the hardware is there: what a model would cost on a chip, and which gears pay.

The counting is in `profiling`, the sizes in `atc_configs`; here they meet the pages and the rules
by which the families and the ACL runtime choose gears.
"""
