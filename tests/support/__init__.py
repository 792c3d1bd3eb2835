"""What the pytest suites share: finding the build, running bq, waiting for conditions, generating bodies."""
