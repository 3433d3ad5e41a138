terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0, < 8.0"
    }
  }
}

variable "project" {
  type        = string
  default     = "shop"
  description = "The project. pubsub/pubsub.tf names it too: print that file again for another one."
}

variable "region" {
  type    = string
  default = "europe-west1"
}

variable "notification_channels" {
  type        = list(string)
  default     = []
  description = "Who is told: the ids of notification channels. Without any, incidents are shown in Cloud Monitoring only."
}

provider "google" {
  project = var.project
  region  = var.region
}
