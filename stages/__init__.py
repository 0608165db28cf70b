"""What happens to documents: readers (path to batches) and judges (batch to verdict). Pure, columnar, no runner."""
