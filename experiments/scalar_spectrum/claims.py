def claims(setup, tables): return []
def measured(tables): return None
def notes(tables): return []
