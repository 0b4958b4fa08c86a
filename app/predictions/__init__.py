"""Questions to trained models: predictions and exports, asked over HTTP and answered by any worker."""
