/**
 * `waybill/opentelemetry`: traces and metrics through the API of OpenTelemetry, which the application brings and sets up.
 */
export { openTelemetryMetrics, type OpenTelemetryMetricsOptions } from './telemetry/opentelemetry-metrics.ts'
export { openTelemetryTracing, type OpenTelemetryTracingOptions } from './telemetry/opentelemetry-tracing.ts'
