"""The WS-bound paper: Wolkowicz–Styan upper bound of the largest Hessian eigenvalue in closed
form."""
