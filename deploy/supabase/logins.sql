-- One login for each process and one for operators, as a member of one group role that the migration made. Run it once, by hand, as
-- postgres; then give each its password with \password, so that no password is in a file or a log.
create role video_app login in role waybill_video_app;
create role video_relay login in role waybill_video_relay;
create role video_dashboard login in role waybill_video_readonly;
create role video_operator login in role waybill_video_owner;
