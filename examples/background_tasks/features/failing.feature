Feature: A task that fails is kept, with its error, for another time

  Scenario: The vector store is down
    Given the vector store is down for "conversation 7"
    And tasks that delete "conversation 7"
    When a processor runs
    Then 1 task is left
    And it is due in 10 minutes
    And its error says "does not answer for conversation 7"
    And it has failed 1 time

  Scenario: The type is unknown
    Given a task "send_postcard" with the body
      """
      {"to": "grandmother"}
      """
    When a processor runs
    Then 1 task is left
    And it is due in 10 minutes
    And its error says "there is no handler for 'send_postcard'"
    And it has failed 1 time
