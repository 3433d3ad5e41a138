# One account for each process, and nothing on the project itself: the grants of pubsub/pubsub.tf are on single topics and
# subscriptions, and each account reads the one secret that it needs.

resource "google_service_account" "video_relay" {
  account_id   = "video-relay"
  display_name = "Relay of the video service: publishes to video.events"
}

resource "google_service_account" "catalog" {
  account_id   = "catalog"
  display_name = "Catalog service: receives video.events.catalog"
}

resource "google_secret_manager_secret" "video_relay_database_url" {
  secret_id = "video-relay-database-url"
  replication {
    auto {}
  }
}

resource "google_secret_manager_secret" "catalog_database_url" {
  secret_id = "catalog-database-url"
  replication {
    auto {}
  }
}

resource "google_secret_manager_secret_iam_member" "video_relay" {
  secret_id = google_secret_manager_secret.video_relay_database_url.id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.video_relay.member
}

resource "google_secret_manager_secret_iam_member" "catalog" {
  secret_id = google_secret_manager_secret.catalog_database_url.id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.catalog.member
}
