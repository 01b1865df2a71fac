"""The report page: data from Python, drawn by the scripts in ``assets``."""
