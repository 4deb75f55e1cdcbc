"""The compiled loop of alternating minimization for small stored problems on a CPU, in float64.

One call runs the steps of a batch of items, which are independent of each other. The C++ sources lie beside this file;
`native` finds and loads the library that an install has built from them. Without it, torch makes the steps.
"""
