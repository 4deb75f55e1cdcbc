"""Numerical primitives: plain torch references and faster backends with the same signatures.

dispatch: the primitives as other packages call them; selects the backend by device, dtype and size ·
sinkhorn: Gibbs kernels and Sinkhorn iterations · streaming_logsumexp: sums over matrices that are never stored ·
reductions: sums over plan entries · anderson: Anderson extrapolation · exact_ot: linear programs (POT) ·
triton: the same primitives as Triton kernels for CUDA · cpu: the compiled loop of small problems · config: thresholds.
"""
