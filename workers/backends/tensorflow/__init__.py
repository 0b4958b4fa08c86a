"""The TensorFlow backend; imported by name in a trainer's process only."""
