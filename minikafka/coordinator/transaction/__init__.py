"""The transaction coordinator: transactional ids, their transactions and epochs; pure."""
