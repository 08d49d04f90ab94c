-- The program's own table, in a schema of its own beside duehook's. Written so that it may be run twice.
CREATE SCHEMA IF NOT EXISTS trucks;
CREATE TABLE IF NOT EXISTS trucks.bookings (
    id           bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    reservation  text        NOT NULL UNIQUE, -- duehook.reservations.id; no foreign key: a producer may not refer to it
    truck        text        NOT NULL CHECK (truck <> ''),
    slot         timestamptz NOT NULL,
    customer     text        NOT NULL CHECK (customer <> ''),
    confirmed_at timestamptz,
    shipped_at   timestamptz CHECK (shipped_at IS NULL OR confirmed_at IS NOT NULL)
);
GRANT USAGE ON SCHEMA trucks TO truck_slots;
GRANT SELECT, INSERT, UPDATE ON trucks.bookings TO truck_slots;
