"""The evaluation report: report.png, a page of pictures, and metrics.csv, the numbers behind the curves."""
