resource "google_pubsub_topic" "video_events_catalog_dead" {
  project = "shop"
  name    = "video.events.catalog.dead"
}

resource "google_pubsub_topic" "video_events" {
  project                    = "shop"
  name                       = "video.events"
  message_retention_duration = "604800s"
}

resource "google_pubsub_subscription" "video_events_catalog" {
  project                      = "shop"
  name                         = "video.events.catalog"
  topic                        = google_pubsub_topic.video_events.id
  ack_deadline_seconds         = 15
  message_retention_duration   = "604800s"
  retain_acked_messages        = true
  enable_message_ordering      = true
  enable_exactly_once_delivery = false
  expiration_policy {
    ttl = ""
  }
  retry_policy {
    minimum_backoff = "1s"
    maximum_backoff = "60s"
  }
  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.video_events_catalog_dead.id
    max_delivery_attempts = 100
  }
}

resource "google_pubsub_subscription" "video_events_catalog_dead_catalog" {
  project                      = "shop"
  name                         = "video.events.catalog.dead.catalog"
  topic                        = google_pubsub_topic.video_events_catalog_dead.id
  ack_deadline_seconds         = 15
  message_retention_duration   = "2678400s"
  retain_acked_messages        = false
  enable_message_ordering      = true
  enable_exactly_once_delivery = false
  expiration_policy {
    ttl = ""
  }
  retry_policy {
    minimum_backoff = "1s"
    maximum_backoff = "60s"
  }
}

resource "google_pubsub_topic_iam_member" "video_events_roles_pubsub_publisher_serviceAccount_video_relay_shop_iam_gserviceaccount_com" {
  project    = "shop"
  topic      = google_pubsub_topic.video_events.name
  role       = "roles/pubsub.publisher"
  member     = "serviceAccount:video-relay@shop.iam.gserviceaccount.com"
  depends_on = [google_pubsub_subscription.video_events_catalog]
}

resource "google_pubsub_topic_iam_member" "video_events_catalog_dead_roles_pubsub_publisher_serviceAccount_service_123456789012_gcp_sa_pubsub_iam_gserviceaccount_com" {
  project    = "shop"
  topic      = google_pubsub_topic.video_events_catalog_dead.name
  role       = "roles/pubsub.publisher"
  member     = "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com"
  depends_on = [google_pubsub_subscription.video_events_catalog_dead_catalog]
}

resource "google_pubsub_subscription_iam_member" "video_events_catalog_roles_pubsub_subscriber_serviceAccount_service_123456789012_gcp_sa_pubsub_iam_gserviceaccount_com" {
  project      = "shop"
  subscription = google_pubsub_subscription.video_events_catalog.name
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com"
}

resource "google_pubsub_subscription_iam_member" "video_events_catalog_roles_pubsub_subscriber_serviceAccount_catalog_shop_iam_gserviceaccount_com" {
  project      = "shop"
  subscription = google_pubsub_subscription.video_events_catalog.name
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:catalog@shop.iam.gserviceaccount.com"
}

resource "google_pubsub_subscription_iam_member" "video_events_catalog_dead_catalog_roles_pubsub_subscriber_serviceAccount_catalog_shop_iam_gserviceaccount_com" {
  project      = "shop"
  subscription = google_pubsub_subscription.video_events_catalog_dead_catalog.name
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:catalog@shop.iam.gserviceaccount.com"
}
