"""What drivers read of `opaque.parameters`: schemas that we know, and what a claim's settings reach. Unknown drivers are left alone."""
