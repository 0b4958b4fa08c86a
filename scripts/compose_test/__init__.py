"""`make compose-test`: the real images and the real stack on a real engine, with faults. See docs/deployment.md."""
