"""Values with gradients: losses, debiased divergence, barycenters."""
