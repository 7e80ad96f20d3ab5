"""Where the time of a page goes: spans on the host, AICORE profiles from the device, forecasts."""
