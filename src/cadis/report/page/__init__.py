"""The page: data made here, drawn by the scripts in ``assets``."""
