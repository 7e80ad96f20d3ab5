"""Everything between a user's file and numbers, and between numbers and a Result.

This package knows pictures, text and geometry. It refuses to know NPUs, torch, ONNX, YAML and HTTP.
"""
