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

provider "google" {
  project = var.project
  region  = var.region
}
