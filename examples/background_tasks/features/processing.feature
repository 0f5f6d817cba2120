Feature: A task is created, run and gone

  Scenario: A task succeeds
    Given a task "vector_store_delete" with the body
      """
      {"group": "conversation 7"}
      """
    When a processor runs
    Then the vector store was asked once to delete "conversation 7"
    And there are no tasks

  Scenario: One of its batch fails
    Given the vector store is down for "conversation 2"
    And tasks that delete "conversation 1", "conversation 2", "conversation 3"
    When a processor runs
    Then the vector store was asked once to delete "conversation 1"
    And the vector store was asked once to delete "conversation 3"
    And 1 task is left

  Scenario: A task that is not due yet
    Given a task that deletes "conversation 7" in an hour
    When a processor runs
    Then 1 task is left
    And the vector store was asked for nothing
