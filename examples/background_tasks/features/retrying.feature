Feature: A task that failed is tried again, as often as it takes

  Background:
    Given the vector store is down for "conversation 7"
    And tasks that delete "conversation 7"
    And a processor has run

  Scenario: Too early
    When 9 minutes pass
    And a processor runs
    Then it has failed 1 time

  Scenario: The vector store is up again
    When the vector store is up again
    And 10 minutes pass
    And a processor runs
    Then the vector store was asked once to delete "conversation 7"
    And there are no tasks

  Scenario: The vector store stays down
    When processors run every 10 minutes, 30 times
    Then 1 task is left
    And it has failed 31 times
    And it is due in 10 minutes
