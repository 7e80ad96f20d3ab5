"""Runs compiled graphs on an Ascend NPU through pyACL: device, memory, models, the key/value cache.

Knows bytes, shapes and gears; refuses to know images, tokens, tasks and model names. Importing it
touches no device.
"""
