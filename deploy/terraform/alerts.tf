# How much Pub/Sub holds for the catalog, and since when: it does not tell its clients, so the rules of prometheus/ cannot know.
# Each alert has its section in docs/guides/runbook.md. Thresholds are starting points: change them to what your readers notice.

resource "google_monitoring_alert_policy" "pubsub_messages_old" {
  display_name          = "PubsubMessagesOld"
  combiner              = "OR"
  notification_channels = var.notification_channels
  documentation {
    content = "Runbook: docs/guides/runbook.md#pubsubmessagesold"
  }
  conditions {
    display_name = "A message has waited for ten minutes for the catalog"
    condition_threshold {
      filter          = "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = \"video.events.catalog\" AND metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\""
      comparison      = "COMPARISON_GT"
      threshold_value = 600
      duration        = "300s"
      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }
  conditions {
    display_name = "A dead letter has waited for ten minutes to be drained"
    condition_threshold {
      filter          = "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = \"video.events.catalog.dead.catalog\" AND metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\""
      comparison      = "COMPARISON_GT"
      threshold_value = 600
      duration        = "300s"
      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }
}

resource "google_monitoring_alert_policy" "pubsub_messages_many" {
  display_name          = "PubsubMessagesMany"
  combiner              = "OR"
  notification_channels = var.notification_channels
  documentation {
    content = "Runbook: docs/guides/runbook.md#pubsubmessagesmany"
  }
  conditions {
    display_name = "The catalog has more than 100,000 messages before it"
    condition_threshold {
      filter          = "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = \"video.events.catalog\" AND metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\""
      comparison      = "COMPARISON_GT"
      threshold_value = 100000
      duration        = "600s"
      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }
}
