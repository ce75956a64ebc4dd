"""The HSR paper: closed-form gradient of the Wolkowicz–Styan bound."""
