def figures(tables): return {}
