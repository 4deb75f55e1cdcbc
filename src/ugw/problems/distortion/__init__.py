"""The four-index sum Σ λ(|Dx_ii' − Dy_jj'|) p_i'j' that linearizes the Gromov–Wasserstein objective.

base: the interface `Distortion` and the loss `PairLoss` · squares: λ(t) = t² · incremental: the same, updated from the
change of the plan · term_by_term: any loss on small plans · factorized: any loss by low-rank factors (factorize) ·
itemwise: batches whose items use different methods · select: chooses among them.
"""
