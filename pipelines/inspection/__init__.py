"""Looking into a run: verdicts, the funnel, single documents, and how a terminal shows them."""
