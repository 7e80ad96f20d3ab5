"""The CPU engines: HunyuanOCR in PyTorch, and any exported graph on ONNX Runtime.

Importing this package imports neither: `torch` and `onnxruntime` are loaded by the module that
needs them.
"""
