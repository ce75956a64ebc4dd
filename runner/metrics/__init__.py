"""What is measured: settings of the metrics, one module a kind. The numbers themselves are made in runner.curvature."""
