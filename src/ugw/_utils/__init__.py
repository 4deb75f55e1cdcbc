"""Helpers without any knowledge of optimal transport: input checks, records of tensors, files, CUDA graphs."""
