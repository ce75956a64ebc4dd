"""What the audits of the WS-bound and the HSR paper share: the network, its terms for pairs of samples, checks."""
