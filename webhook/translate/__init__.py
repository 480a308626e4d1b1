"""A pod and a state become a patch: whose words these are, what they mean, what is written."""
