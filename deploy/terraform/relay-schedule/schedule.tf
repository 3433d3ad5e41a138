# Runs the relay as a job once a minute. For events that may take a minute; otherwise deploy cloud-run/relay-service.yaml.
# A folder of its own, applied when the job is there: a grant on a job that is not cannot be made.

resource "google_service_account" "scheduler" {
  account_id   = "video-relay-scheduler"
  display_name = "Starts the relay job of the video service"
}

resource "google_cloud_run_v2_job_iam_member" "scheduler" {
  name     = "video-relay"
  location = var.region
  role     = "roles/run.invoker"
  member   = google_service_account.scheduler.member
}

resource "google_cloud_scheduler_job" "video_relay" {
  name             = "video-relay"
  region           = var.region
  schedule         = "* * * * *"
  attempt_deadline = "30s"
  http_target {
    http_method = "POST"
    uri         = "https://run.googleapis.com/v2/projects/${var.project}/locations/${var.region}/jobs/video-relay:run"
    oauth_token {
      service_account_email = google_service_account.scheduler.email
    }
  }
}
