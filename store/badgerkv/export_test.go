package badgerkv

// Journal returns the path of the file that was synced last, "" where Badger syncs.
func (db *DB) Journal() string {
	if db.journal == nil {
		return ""
	}
	return db.journal.file.Name()
}
