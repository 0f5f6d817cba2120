Feature: Processors share the tasks

  Scenario: Three processors at once
    Given 100 tasks that delete a conversation each
    When 3 processors run at once
    Then each of the 100 conversations was deleted once
    And there are no tasks

  Scenario: A named task exists once
    Given the vector store is down for "conversation 7"
    When 5 entries are remembered in "conversation 7"
    Then 1 task is left
    And it is named "vector_store_index_retry"

  Scenario: A processor dies
    Given tasks that delete "conversation 1", "conversation 2"
    And a processor has claimed them and died
    When 4 minutes pass
    And a processor runs
    Then 2 tasks are left
    When 2 minutes pass
    And processors have found what the dead one held
    Then the vector store was asked once to delete "conversation 1"
    And the vector store was asked once to delete "conversation 2"
    And there are no tasks
