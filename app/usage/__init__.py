"""What was used, by whom, and to what effect: device-hours, energy, and what bounded a training."""
